<?php
// The php workload: records, maps of lists, string building, sorting; own generator, the same output in every run.
// Run with USE_ZEND_ALLOC=0, so that every block comes from malloc.
$state = 20110805;
function below(int $limit): int {
    global $state;
    $state = ($state * 1103515245 + 12345) & 0x7fffffff;
    return ($state >> 8) % $limit;
}

class Record {
    public array $tags = [];
    public function __construct(public int $number, public string $name) {
        for ($i = 0; $i < 5; $i++) $this->tags[] = 'tag' . below(300);
    }
}

for ($round = 0; $round < 3; $round++) {
    $records = [];
    $byTag = [];
    for ($n = 0; $n < 30000; $n++) {
        $record = new Record($n, sprintf('user-%05d', below(100000)));
        $records[] = $record;
        foreach ($record->tags as $tag) $byTag[$tag][] = $record;
    }
    $lines = array_map(fn ($r) => $r->name . ':' . implode(',', $r->tags), $records);
    sort($lines);
    $words = array_count_values(preg_split('/[:,\n]/', implode("\n", $lines)));
    arsort($words);
    ksort($byTag);
    echo $round, ' ', count($byTag), ' ', max(array_map('count', $byTag)), ' ', count($words), ' ', md5(implode("\n", $lines)), "\n";
}
