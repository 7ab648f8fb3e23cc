<?php
// Instances of a class, each with an array of numbers.
class Session
{
    public array $seen;
    public function fill(int $n): void
    {
        $this->seen = range($n, $n + 999);
    }
}
$kept = [];
for ($n = 0; $n < 1000; $n++) {
    $session = new Session();
    $session->fill($n);
    $kept[] = $session;
}
fwrite(STDOUT, "planted Session::fill 8 " . 1000 * 16000 . "\n");
posix_kill(getmypid(), 9);
