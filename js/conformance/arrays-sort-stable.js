const people = Array.from({ length: 500 }, (_, i) => ({ age: i * 31 % 10, i })); people.sort((a, b) => a.age - b.age);
let stable = true; for (let i = 1; i < people.length; i++) if (people[i - 1].age === people[i].age && people[i - 1].i > people[i].i) stable = false; console.log(stable, people.slice(0, 5).map(p => p.i).join());
