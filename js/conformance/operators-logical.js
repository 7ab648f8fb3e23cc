let a = null, b = 0, c = 'x'; a ??= 'set'; b ||= 'or'; c &&= 'and'; console.log(a, b, c, null ?? 'd', 0 ?? 'd', 0 || 'd', '' && 'e');
const o = { f: { g: () => 'called' } }; console.log(o?.f?.g?.(), o.x?.y.z.w, o.x?.[1], delete o?.f, o.f?.g(), typeof undeclared, void 0);
console.log([] + [], [] + {}, 1 + '2', '3' * '4', true + 1, [] == false, null == undefined, null == 0, NaN != NaN, '10' < '9', 10 < 9, (1, 2));
