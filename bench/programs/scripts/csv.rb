# Ruby's CSV: rows written, read with their headers, grouped and written as JSON.
require "csv"
require "json"
require_relative "text"

random = Words.new
text = CSV.generate do |csv|
  csv << %w[name kind bytes note]
  3000.times { csv << [random.words(1), random.words(1), random.number(100_000), "#{random.words(3)}, \"#{random.words(1)}\""] }
end
rows = CSV.parse(text, headers: true)
sums = rows.group_by { |row| row["kind"] }.transform_values { |all| all.sum { |row| row["bytes"].to_i } }
puts rows.size, JSON.generate(sums.sort.to_h), JSON.parse(JSON.generate(rows.map(&:to_h))).size
