<?php
// Holders of memory in all ways in which PHP calls PHP, each predicted by hand.
//
// Each way makes COUNT texts of a size of its own, on the line that ends with "// HOLD way". A text of N bytes that is made by
// repetition asks for N + 32, if USE_ZEND_ALLOC is 0; one that an operator makes for N + 25, rounded up to eight. Prints a line for each way: its name, the size that is asked for, and how many times.
//
// Not here: what a recorder should make of it (faces/cli/tests/python/others.rs).

const COUNT = 40;
$held = [];
$ways = [];

function way(string $name, int $bytes, int $count = COUNT): void
{
    global $ways;
    $ways[] = [$name, $bytes + 32, $count];
}

function hold(string $text): void
{
    global $held;
    $held[] = $text;
}

function plain(): void
{
    for ($n = 0; $n < COUNT; $n++) {
        hold(str_repeat("x", 10000)); // HOLD plain
    }
}

function concatenated(): void
{
    // An operator saves no line of its own: it is at that of the last call before it in its function.
    for ($n = 0; $n < COUNT; $n++) {
        $half = str_repeat("x", 5005); hold($half . $half); // HOLD concatenated
    }
}

function mapped(): void
{
    array_map(fn ($n) => hold(str_repeat("x", 10020)), range(1, COUNT)); // HOLD mapped
}

function generated(): iterable
{
    for ($n = 0; $n < COUNT; $n++) {
        yield str_repeat("x", 10030); // HOLD generated
    }
}

function delegated(): iterable
{
    yield from generated_inside();
}

function generated_inside(): iterable
{
    for ($n = 0; $n < COUNT; $n++) {
        yield str_repeat("x", 10040); // HOLD generated_inside
    }
}

class Store
{
    private string $row;

    public function __construct(int $bytes)
    {
        $this->row = str_repeat("x", $bytes); // HOLD __construct
    }

    public static function ofTheClass(): void
    {
        hold(str_repeat("x", 10060)); // HOLD ofTheClass
    }

    public function __call(string $name, array $arguments): void
    {
        hold(str_repeat("x", 10070)); // HOLD __call
    }

    public function __toString(): string
    {
        hold(str_repeat("x", 10080)); // HOLD __toString
        return "";
    }

    public function __destruct()
    {
        if (strlen($this->row) == 5) {
            hold(str_repeat("x", 10090)); // HOLD __destruct
        }
    }
}

function compared(): void
{
    for ($n = 0; $n < COUNT; $n++) {
        $list = [2, 1];
        usort($list, function ($a, $b) {
            hold(str_repeat("x", 10100)); // HOLD compared
            return $a - $b;
        });
    }
}

function raises(int $depth): void
{
    if ($depth == 0) {
        throw new Exception("a");
    }
    array_map(fn ($n) => raises($depth - 1), [1]);
}

function caught(): void
{
    for ($n = 0; $n < COUNT; $n++) {
        try {
            raises($n % 5);
        } catch (Exception $e) {
            hold(str_repeat("x", 10110)); // HOLD caught
        } finally {
            hold(str_repeat("x", 10120)); // HOLD finally
        }
    }
}

function deep(int $depth): void
{
    if ($depth > 0) {
        deep($depth - 1);
        return;
    }
    hold(str_repeat("x", 10130)); // HOLD deep
}

function deep_in_c(int $depth): void
{
    if ($depth > 0) {
        array_map(fn ($n) => deep_in_c($depth - 1), [1]);
        return;
    }
    hold(str_repeat("x", 10140)); // HOLD deep_in_c
}

function main(): void
{
    plain();
    way("plain", 10000);
    concatenated();
    way("concatenated", ((10010 + 25 + 7) & ~7) - 32);
    mapped();
    way("mapped", 10020);
    foreach (generated() as $text) {
        hold($text);
    }
    way("generated", 10030);
    foreach (delegated() as $text) {
        hold($text);
    }
    way("generated_inside", 10040);
    $stores = [];
    for ($n = 0; $n < COUNT; $n++) {
        $stores[] = new Store(10050);
    }
    way("__construct", 10050);
    for ($n = 0; $n < COUNT; $n++) {
        Store::ofTheClass();
        $stores[0]->isNotThere();
        strlen($stores[0]);
        $gone = new Store(5);
        $gone = null;
    }
    way("ofTheClass", 10060);
    way("__call", 10070);
    way("__toString", 10080);
    way("__destruct", 10090);
    compared();
    way("compared", 10100);
    caught();
    way("caught", 10110);
    way("finally", 10120);
    for ($n = 0; $n < COUNT; $n++) {
        deep($n * 20);
        deep_in_c($n);
    }
    way("deep", 10130);
    way("deep_in_c", 10140);
    for ($n = 0; $n < COUNT; $n++) {
        eval("\n\nfunction again_$n() {\n hold(str_repeat('x', 10150));\n}\nagain_$n();");
    }
    way("again", 10150);
    foreach (range(1, COUNT) as $n) {
        hold(str_repeat("x", 10160)); // HOLD main
    }
    way("main", 10160);
}

main();
for ($n = 0; $n < COUNT; $n++) {
    $held[] = str_repeat("x", 10170); // HOLD {main}
}
way("{main}", 10170);
foreach ($ways as [$name, $bytes, $count]) {
    echo "$name $bytes $count\n";
}
