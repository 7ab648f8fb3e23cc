#!/bin/sh
# Redis at work, once: 200,000 values, nine tenths of them deleted, some seconds of rest, the end. The same work every
# time: one connection, a fixed seed. For `skinflint compare -- sh bench/compare/redis.sh [KEYS [REST_S]]`.
set -e
keys=${1:-200000}
rest=${2:-5}
folder=$(mktemp -d)
redis-server --port 0 --unixsocket "$folder/s" --save '' --appendonly no --dir "$folder" > "$folder/log" &
server=$!
trap 'kill $server 2> /dev/null || :; rm -rf "$folder"' EXIT
tries=0
until [ -S "$folder/s" ]; do
	tries=$((tries + 1))
	[ $tries -lt 500 ] || { echo "redis-server does not start:" >&2; cat "$folder/log" >&2; exit 1; }
	sleep 0.02
done
ask() { redis-cli -s "$folder/s" "$@"; }
ask eval 'local text = string.rep("v", 600)
	for i = 1, ARGV[1] do redis.call("set", "key:" .. i, string.sub(text, 1, 100 + i * 7 % 500)) end
	return ARGV[1]' 0 "$keys"
ask eval 'local gone = 0
	for i = 1, ARGV[1] do if i % 10 > 0 then gone = gone + redis.call("del", "key:" .. i) end end
	return gone' 0 "$keys"
sleep "$rest"
ask dbsize
ask shutdown nosave
wait $server
