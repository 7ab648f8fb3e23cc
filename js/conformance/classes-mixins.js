const Walks = Base => class extends Base { walk() { return this.name + ' walks'; } };
const Swims = Base => class extends Base { swim() { return this.name + ' swims'; } };
class Animal { constructor(name) { this.name = name; } }
class Duck extends Swims(Walks(Animal)) {}
const d = new Duck('Eda'); console.log(d.walk(), d.swim());
