for (const text of ['{', '[1,]', "{'a':1}", '01', 'nul', '"\t"', '']) { try { JSON.parse(text); console.log('parsed ' + text); } catch (e) { console.log(e.name); } }
const o = {}; o.self = o; try { JSON.stringify(o); } catch (e) { console.log(e.constructor.name); }
try { JSON.stringify(1n); } catch (e) { console.log(e.constructor.name); }
