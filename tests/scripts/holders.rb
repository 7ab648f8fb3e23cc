# Holders of memory in all ways in which Ruby calls Ruby, each predicted by hand.
#
# Each way makes COUNT texts of a size of its own, on the line that ends with "# HOLD way". A text of N bytes that is made by
# repetition asks for N + 1. Prints a line for each way: its name, the size that is asked for, and how many times.
#
# Not here: what a recorder should make of it (faces/cli/tests/python/others.rs).

COUNT = 40
HELD = []
WAYS = []

def way(name, bytes_asked, count = COUNT)
  WAYS << [name, bytes_asked, count]
end

def plain
  n = 0
  while n < COUNT
    HELD << "x" * 10_001 # HOLD plain
    n += 1
  end
end

def in_a_block
  COUNT.times do
    HELD << "x" * 10_011 # HOLD in_a_block
  end
end

def in_two_blocks
  COUNT.times { |_| [1].each { |_| HELD << "x" * 10_021 } } # HOLD in_two_blocks
end

def by_yield
  yield
end

def yielded
  COUNT.times { by_yield { HELD << "x" * 10_031 } } # HOLD yielded
end

class Store
  HELD << (0...COUNT).map { "x" * 10_041 } # HOLD Store

  def initialize(bytes)
    @row = "x" * bytes # HOLD initialize
  end

  def self.of_the_class
    HELD << "x" * 10_061 # HOLD of_the_class
  end

  define_method(:defined) do
    HELD << "x" * 10_071 # HOLD defined
  end

  def method_missing(name)
    HELD << "x" * 10_081 # HOLD method_missing
  end

  def respond_to_missing?(*) = true

  def <=>(other)
    HELD << "x" * 10_091 # HOLD compared
    0
  end
  include Comparable
end

def rescued
  COUNT.times do
    begin
      [1].each { raise "a" }
    rescue
      HELD << "x" * 10_101 # HOLD rescued
    end
  end
end

def ensured
  COUNT.times do
    begin
      [1].each { |_| throw :out } if true
    ensure
      HELD << "x" * 10_111 # HOLD ensured
    end
  end
end

def deep(depth)
  return deep(depth - 1) if depth > 0

  HELD << "x" * 10_121 # HOLD deep
end

def deep_in_c(depth)
  return [1].each { deep_in_c(depth - 1) } if depth > 0

  HELD << "x" * 10_131 # HOLD deep_in_c
end

def threaded
  COUNT.times { HELD << "x" * 10_141 } # HOLD threaded
end

def raises(depth)
  raise "b" if depth.zero?

  [1].each { raises(depth - 1) }
end

def after_an_exception
  COUNT.times do |n|
    begin
      raises(n % 5)
    rescue
      nil
    end
    HELD << "x" * 10_151 # HOLD after_an_exception
  end
end

def many_lines
  COUNT.times do
    a = 1; b = 2; c = a + b
    a = [a, b, c].sum
    b = { a => b, c => a }.size
    c = "#{a} #{b} #{c}".size
    a = [a, b, c].map { |one| one + 1 }.sum
    b = [a, b, c].select { |one| one > 1 }.size
    c = (a..a + b).to_a.size
    a = b > c ? a : b
    b = [a, b, c].max
    c = [a, b, c].min
    HELD << "x" * 10_161 # HOLD many_lines
  end
end

def main
  plain
  way "plain", 10_002
  in_a_block
  way "in_a_block", 10_012
  in_two_blocks
  way "in_two_blocks", 10_022
  yielded
  way "yielded", 10_032
  way "Store", 10_042
  COUNT.times { HELD << Store.new(10_051) }
  way "initialize", 10_052
  COUNT.times { Store.of_the_class }
  way "of_the_class", 10_062
  store = Store.new(5)
  COUNT.times { store.defined }
  way "defined", 10_072
  COUNT.times { store.is_not_there }
  way "method_missing", 10_082
  COUNT.times { [store, Store.new(6)].sort }
  way "compared", 10_092
  rescued
  way "rescued", 10_102
  catch(:done) { COUNT.times { catch(:out) { ensured } } }
  way "ensured", 10_112
  COUNT.times { |n| deep(n * 20) }
  way "deep", 10_122
  COUNT.times { |n| deep_in_c(n) }
  way "deep_in_c", 10_132
  Thread.new { threaded }.join
  way "threaded", 10_142
  after_an_exception
  way "after_an_exception", 10_152
  many_lines
  way "many_lines", 10_162
  # Codes come and go, at addresses that were used before.
  COUNT.times do |n|
    eval "def again_#{n}\nHELD << 'x' * 10_171\nend\nagain_#{n}; undef again_#{n}", TOPLEVEL_BINDING, "again.rb", n + 1
    GC.start if n % 8 == 0
  end
  way "again", 10_172
  GC.stress = true
  HELD << "x" * 10_181 # HOLD main
  GC.stress = false
  way "main", 10_182, 1
end

main
WAYS.each { |name, bytes, count| puts "#{name} #{bytes} #{count}" }
