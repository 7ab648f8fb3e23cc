const e = ['a', 'b'].entries(); console.log(e.next().value.join(), e[Symbol.toStringTag], [...e].length);
console.log([...'a😀b'].length, [...new Map([[1, 2]])][0].join(), Object.fromEntries([['x', 1], ['y', 2]]).y);
try { const [q] = {}; } catch (err) { console.log(err.constructor.name); } try { new Map([1]); } catch (err) { console.log(err.constructor.name); }
