# kramdown: a document of headings, lists, tables, links and code, made HTML.
require "kramdown"
require_relative "text"

random = Words.new
parts = Array.new(60) do |index|
  "## #{random.words(3)}\n\n#{random.words(30)} **#{random.words(2)}** [#{random.words(1)}](http://example.org/#{index})\n\n" \
    "* #{random.words(5)}\n* #{random.words(4)} `#{random.words(1)}`\n\n| #{random.words(1)} | #{random.words(1)} |\n|---|---|\n" \
    "| #{random.words(2)} | #{random.words(2)} |\n\n    #{random.words(6)}\n"
end
html = Kramdown::Document.new(parts.join("\n")).to_html
puts html.size, html.sum
