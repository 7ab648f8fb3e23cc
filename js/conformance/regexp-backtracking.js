console.log(/(a+)+b/.test('aaaaaaaaaaaaab'), 'aaa'.replace(/a*?/g, '-'), /(?:(a)|b)*/.exec('ab')[1] === undefined, /(z)((a+)?(b+)?(c))*/.exec('zaacbbbcac').map(String).join());
