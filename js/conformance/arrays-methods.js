const a = [3, 1, 2]; console.log(a.toSorted().join(), a.toReversed().join(), a.with(1, 9).join(), a.join(), a.at(-2), [1, [2, [3, [4]]]].flat(Infinity).join());
console.log([1, 2, 3, 4, 5].copyWithin(1, 3).join(), Array(3).fill(0).map((_, i) => i).join(), [1, 2, 3].splice(1, 1).join(), [5, 1, 10].sort().join(), [1, 2].flatMap(x => [x, x * 10]).join());
console.log([1, 2, 3, 4].findLast(x => x % 2), [1, 2, 3].includes(NaN), [NaN].includes(NaN), [3, 2, 1].lastIndexOf(2), Array.isArray([]), [..."ab"].reduceRight((x, y) => x + y));
