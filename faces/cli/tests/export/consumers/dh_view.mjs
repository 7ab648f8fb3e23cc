// dh_view.mjs DH_VIEW.JS FILE: opens FILE as Valgrind's viewer does, and prints the sums of its tree.
//
//   dh_view.js (Debian's, unchanged) ─► buildTree() on the data ─► gRoot, and the text of the page
//
// D1  The viewer's own checks run: a missing field or a repeated stack is its error, and our failure.
//
// The page is a stand-in: elements that only keep their children and text. Not here: looks.
import { readFileSync } from "node:fs";
import vm from "node:vm";

class Element {
  constructor(tag) {
    this.tag = tag;
    this.childNodes = [];
    this.classList = { add() {}, contains: () => false, toggle() {} };
    this.options = [];
    this.selectedIndex = 0;
    this.own = "";
  }
  appendChild(child) {
    child.parentNode = this;
    this.childNodes.push(child);
    return child;
  }
  cloneNode() {
    return new Element(this.tag);
  }
  replaceChild(now, before) {
    now.parentNode = this;
    this.childNodes = this.childNodes.map((child) => (child === before ? now : child));
  }
  addEventListener() {}
  get textContent() {
    return this.own + this.childNodes.map((child) => child.textContent).join("");
  }
  set textContent(text) {
    this.childNodes = [];
    this.own = text;
  }
  removeChild(child) {
    this.childNodes = this.childNodes.filter((one) => one !== child);
  }
  get firstChild() {
    return this.childNodes[0] ?? null;
  }
  get lastChild() {
    return this.childNodes.at(-1) ?? null;
  }
}

const [viewer, file] = process.argv.slice(2);
const body = new Element("body");
const document = {
  body,
  location: { search: "" },
  createElement: (tag) => new Element(tag),
  createTextNode: (text) => Object.assign(new Element("#text"), { own: text }),
};
const context = vm.createContext({ document, performance, URLSearchParams, Intl, console });
vm.runInContext(readFileSync(viewer, "utf8"), context, { filename: viewer });
context.text = readFileSync(file, "utf8");
const sums = vm.runInContext(
  `onLoad();
   gFilename = "file";
   gSelect.selectedIndex = gSelectData.findIndex((one) => one.isDefault);
   gData = JSON.parse(text);
   buildTree();
   displayTree(0, 0, 0);
   ({ tb: gRoot._totalBytes, tbk: gRoot._totalBlocks, tl: gRoot._totalLifetimes,
      gb: gRoot._atTGmaxBytes, gbk: gRoot._atTGmaxBlocks, eb: gRoot._atTEndBytes, ebk: gRoot._atTEndBlocks })`,
  context,
);
process.stdout.write(JSON.stringify({ ...sums, page: body.textContent }) + "\n");
