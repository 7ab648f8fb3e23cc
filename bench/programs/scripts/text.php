<?php
// Words by a small generator of numbers: the same in every run.
final class Words
{
    private const LIST = ["page", "span", "heap", "arena", "slop", "block", "stack", "frame", "ring", "ticket", "trace", "ledger",
        "class", "bytes", "holder", "leak", "peak", "idle", "purge", "map"];
    private int $state = 7;

    public function number(int $below): int
    {
        $this->state = ($this->state * 1103515245 + 12345) % 2147483648;
        return ($this->state >> 8) % $below;
    }

    public function words(int $count): string
    {
        return implode(" ", array_map(fn () => self::LIST[$this->number(count(self::LIST))], range(1, $count)));
    }

    /** @return array<array{name: string, kind: string, bytes: int}> */
    public function rows(int $count): array
    {
        return array_map(fn () => ["name" => $this->words(2), "kind" => $this->words(1), "bytes" => $this->number(100000)], range(1, $count));
    }
}
