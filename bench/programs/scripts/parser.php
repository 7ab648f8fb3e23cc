<?php
// PHP-Parser: its own sources parsed, walked, and printed again.
require "/usr/share/php/PhpParser/autoload.php";

use PhpParser\Node;

$parser = (new PhpParser\ParserFactory())->create(PhpParser\ParserFactory::PREFER_PHP7);
$printer = new PhpParser\PrettyPrinter\Standard();
$finder = new PhpParser\NodeFinder();
[$nodes, $bytes] = [0, 0];
foreach (["NodeAbstract", "NodeFinder", "NodeTraverser", "BuilderHelpers", "Comment", "Error", "Lexer", "NameContext"] as $name) {
    $tree = $parser->parse(file_get_contents("/usr/share/php/PhpParser/$name.php"));
    $nodes += count($finder->findInstanceOf($tree, Node::class));
    $bytes += strlen($printer->prettyPrintFile($tree));
}
echo $nodes, " ", $bytes, "\n";
