<?php
// Smarty: a template with sections, modifiers and a function, compiled to a file and rendered.
error_reporting(E_ALL & ~E_DEPRECATED);
require "/usr/share/php/smarty4/Smarty.class.php";
require __DIR__ . "/text.php";

$random = new Words();
$smarty = new Smarty();
$smarty->setCompileDir(getcwd() . "/compiled");
$template = "string:{function row}<tr><td>{\$row.name|capitalize}</td><td>{\$row.bytes|string_format:'%08d'}</td></tr>{/function}"
    . "<h1>{\$title|upper}</h1>{foreach \$rows as \$one}{row row=\$one}{if \$one.bytes > 50000}<b>{\$one.kind|escape}</b>{/if}"
    . "{foreachelse}none{/foreach}";
$sum = 0;
for ($page = 0; $page < 20; $page++) {
    $smarty->assign("title", $random->words(3));
    $smarty->assign("rows", $random->rows(300));
    $html = $smarty->fetch($template);
    $sum = ($sum + crc32($html)) % 4294967296;
}
echo strlen($html), " ", $sum, "\n";
