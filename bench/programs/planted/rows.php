<?php
// Texts that are kept in an array.
$kept = [];
function planted(array &$kept, int $n): void
{
    $kept[] = str_repeat("x", 2000 + $n % 2);
}
for ($n = 0; $n < 10000; $n++) planted($kept, $n);
fwrite(STDOUT, "planted planted 6 " . 10000 * 2024 . "\n");
posix_kill(getmypid(), 9);
