// What the type checker (`make types`) cannot see in the page's scripts: fields that classes get by Object.assign, and
// what functions keep beside themselves. A field that is not here, or is misspelt where it is used, is an error.

interface Brush {
  windows: any;
  range: any;
  left: number;
  right: number;
  svg: any;
  w: number;
  report: any;
}

interface FlameChart {
  row: number;
  text: string;
  up: boolean;
  dead: boolean;
  tree: any;
  root: any;
  unit: string;
  whole: string;
  onzoom: ((box: any) => void) | undefined;
  onsay: ((box: any) => void) | undefined;
}

interface MeasureTree {
  report: any;
  up: boolean;
  parent: any;
}

interface Windows {
  liveBlocks: Float64Array;
  liveRequested: Float64Array;
  liveUsable: Float64Array;
  acquiredBlocks: Float64Array;
  acquiredUsable: Float64Array;
}

interface Amounts {
  windows: any;
  from: number | null;
  to: number;
}

interface Uint8ArrayConstructor {
  /** Chromium 140, Firefox 133, Safari 18.2; columns.js does without it elsewhere. */
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}
