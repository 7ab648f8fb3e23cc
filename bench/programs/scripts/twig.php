<?php
// Twig: templates that extend and include each other, compiled and rendered.
require "/usr/share/php/Twig/autoload.php";
require __DIR__ . "/text.php";

$random = new Words();
$loader = new Twig\Loader\ArrayLoader([
    "base" => "<html><title>{% block title %}{% endblock %}</title>{% block body %}{% endblock %}</html>",
    "row" => "<tr class=\"{{ cycle(['odd', 'even'], at) }}\"><td>{{ row.name|title }}</td><td>{{ row.bytes|number_format }}</td></tr>",
    "page" => "{% extends 'base' %}{% block title %}{{ title|upper }}{% endblock %}{% block body %}<table>{% for row in rows %}"
        . "{% include 'row' with {row: row, at: loop.index} %}{% if row.bytes > 50000 %}<b>{{ row.kind|e }}</b>{% endif %}"
        . "{% else %}none{% endfor %}</table>{% endblock %}",
]);
$twig = new Twig\Environment($loader, ["cache" => false]);
$sum = 0;
for ($page = 0; $page < 20; $page++) {
    $html = $twig->render("page", ["title" => $random->words(3), "rows" => $random->rows(300)]);
    $sum = ($sum + crc32($html)) % 4294967296;
}
echo strlen($html), " ", $sum, "\n";
