# Asciidoctor: a document of sections, lists, tables and listings, made HTML.
require "asciidoctor"
require_relative "text"

random = Words.new
parts = Array.new(60) do |index|
  "== #{random.words(3)}\n\n#{random.words(30)} *#{random.words(2)}* http://example.org/#{index}[#{random.words(1)}]\n\n" \
    "* #{random.words(5)}\n** #{random.words(4)} `#{random.words(1)}`\n\n|===\n|#{random.words(1)} |#{random.words(1)}\n\n" \
    "|#{random.words(2)}\n|#{random.words(2)}\n|===\n\n----\n#{random.words(6)}\n----\n"
end
html = Asciidoctor.convert("= Report\n\n#{parts.join("\n")}", safe: :safe)
puts html.size, html.sum
