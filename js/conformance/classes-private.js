class Stack { #items = []; static #made = 0; constructor() { Stack.#made++; } push(x) { this.#items.push(x); return this; } pop() { return this.#items.pop(); } #size() { return this.#items.length; } get size() { return this.#size(); } static get made() { return Stack.#made; } static has(o) { return #items in o; } }
const s = new Stack().push(1).push(2).push(3); s.pop();
console.log(s.size, Stack.made, Stack.has(s), Stack.has({}));
try { Stack.prototype.pop.call({}); } catch (e) { console.log(e instanceof TypeError); }
