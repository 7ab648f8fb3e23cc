// What bcrypt's tests call, which are written for another runner than the one that runs all: `expect` is that runner's own.
global.expect = require('expect').expect
global.jest = { setTimeout () {} }
