require "json"; require "set"; require "tempfile"; require "open3"; require "socket"; require "time"; require "digest"
puts %w[b a c].sort.map(&:upcase).each_slice(2).to_a.inspect
puts JSON.generate({ "ž" => [1, nil, 2.5] })
puts (1..20).each_with_object(Hash.new(0)) { |n, h| h[n % 3] += n }.sort.inspect
results = Queue.new
8.times.map { |n| Thread.new { results << n * n } }.each(&:join)
puts results.size
Tempfile.create("x") { |f| f.write("text"); f.flush; puts File.size(f.path) }
out, status = Open3.capture2("tr a-z A-Z; exit 2", stdin_data: "shell")
puts out, status.exitstatus
server = TCPServer.new("127.0.0.1", 0)
t = Thread.new { c = server.accept; c.puts "served"; c.close }
puts TCPSocket.new("127.0.0.1", server.addr[1]).gets
t.join
pid = fork { exit 7 }
Process.wait(pid)
puts $?.exitstatus, Time.at(0).utc.iso8601, Digest::SHA256.hexdigest("x")[0, 8], "žluť".length, Encoding.default_external
begin; Integer("x"); rescue ArgumentError => e; puts e.class; end
exit 10
