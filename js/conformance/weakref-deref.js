let target = { v: 5 }; const ref = new WeakRef(target);
console.log(ref.deref() === target, ref.deref().v);
if (typeof gc === 'function') gc();
console.log(ref.deref().v);
target = null;
setTimeout(() => { if (typeof gc === 'function') gc(); setTimeout(() => console.log(String(ref.deref())), 5); }, 5);
