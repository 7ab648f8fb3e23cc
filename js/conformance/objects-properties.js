const o = Object.defineProperty({}, 'hidden', { value: 1 }); o.b = 2; o[10] = 'ten'; o[2] = 'two'; o.a = 1; console.log(Object.keys(o).join(), JSON.stringify(Object.getOwnPropertyDescriptor(o, 'hidden')));
const f = Object.freeze({ x: { y: 1 } }); f.x.y = 2; f.z = 1; console.log(f.x.y, f.z, Object.isFrozen(f), Object.isSealed(Object.seal({})), Object.isExtensible(Object.preventExtensions({})));
console.log(Object.entries({ ...{ a: 1, b: 2 }, b: 3 }).join('|'), Object.assign({}, null, { q: 1 }, 'st').q, Object.is(-0, 0), Object.hasOwn({ h: 1 }, 'h'));
