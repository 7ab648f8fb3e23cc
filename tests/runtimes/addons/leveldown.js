// The suite by which every store of abstract-leveldown is judged, on leveldown's addon (LevelDB in C++).
const tape = require('tape')
const leveldown = require('leveldown')
const fs = require('fs')
const os = require('os')
const path = require('path')

let number = 0
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'leveldown-'))
process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }))
require('abstract-leveldown/test')({
  test: tape,
  factory: () => leveldown(path.join(folder, String(number++)))
})
