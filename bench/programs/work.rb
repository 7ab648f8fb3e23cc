# The ruby workload: objects, strings, hashes, sorting; its own generator, the same output in every run.
class Draw
  def initialize(seed) = @state = seed

  def below(limit)
    @state = (@state * 1_103_515_245 + 12_345) & 0x7fffffff
    (@state >> 8) % limit
  end
end

Record = Struct.new(:number, :name, :tags, :body)

draw = Draw.new(20_110_805)
5.times do |round|
  records = Array.new(16_000) do |number|
    tags = Array.new(5) { "tag#{draw.below(300)}" }
    Record.new(number, format("user-%05d", draw.below(100_000)), tags, "body #{number} " * 8)
  end
  by_tag = Hash.new { |hash, key| hash[key] = [] }
  records.each { |record| record.tags.each { |tag| by_tag[tag] << record } }
  longest = by_tag.max_by { |tag, group| [group.size, tag] }
  text = records.map { |r| "#{r.name}:#{r.tags.join(',')}:#{r.body}" }.join("\n")
  words = text.split(/[:,\s]+/).tally
  puts "#{round} #{longest[0]} #{longest[1].size} #{words.size} #{text.bytesize}"
end
