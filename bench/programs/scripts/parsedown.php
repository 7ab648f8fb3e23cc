<?php
// Parsedown: a document of headings, lists, tables, links and code, made HTML.
require "/usr/share/php/Parsedown/autoload.php";
require __DIR__ . "/text.php";

$random = new Words();
$text = "";
for ($index = 0; $index < 500; $index++) {
    $text .= "## {$random->words(3)}\n\n{$random->words(30)} **{$random->words(2)}** [{$random->words(1)}](http://example.org/$index)\n\n"
        . "* {$random->words(5)}\n* {$random->words(4)} `{$random->words(1)}`\n\n| {$random->words(1)} | {$random->words(1)} |\n|---|---|\n"
        . "| {$random->words(2)} | {$random->words(2)} |\n\n    {$random->words(6)}\n\n";
}
$html = (new Parsedown())->text($text);
echo strlen($html), " ", crc32($html), "\n";
