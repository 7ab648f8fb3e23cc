# Rake: tasks with prerequisites and arguments, file lists, rules.
require "rake"
require_relative "text"

random = Words.new
done = []
Rake.application.init("rake", ["--silent"])
include Rake::DSL
2000.times do |index|
  before = index.zero? ? [] : Array.new(3) { "task#{random.number(index)}" }.uniq
  task("task#{index}", [:kind] => before) { |one, given| done << "#{one.name} #{given[:kind]} #{random.words(2)}" }
end
file("never.o" => []) { done << "file" }
namespace(:all) { task(:last => (0...2000).map { |index| ":task#{index}" }.map { |name| name.delete(":") }) }
Rake::Task["all:last"].invoke("plain")
names = Rake::FileList["#{__dir__}/*.rb"].ext(".o").map { |name| File.basename(name) }.sort
puts done.size, done.join.sum, names.size
