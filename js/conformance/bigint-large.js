let a = 0n, b = 1n; for (let i = 0; i < 3000; i++) [a, b] = [b, a + b]; const s = a.toString(); console.log(s.length, s.slice(0, 20), s.slice(-20));
try { 1n + 1; } catch (e) { console.log(e.constructor.name); } try { 1n / 0n; } catch (e) { console.log(e.constructor.name); }
