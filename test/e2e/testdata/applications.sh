#!/bin/sh
# Has applications work in a folder, and checks what they have stored: applications.sh FOLDER SECONDS. It prints a line
# with BEGIN when one begins, so that the test can kill the tunnel under it.
set -eu
data=$1
seconds=$2
umask 022
export HOME=/tmp
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)

# want checks that a command prints a text.
want() {
	text=$1
	shift
	got=$("$@") || exit
	[ "$got" = "$text" ] || { echo "$*: got $got, want $text"; exit 1; }
}

echo "BEGIN sqlite: writers with their own locks"
db=$data/sqlite.db
sqlite3 "$db" 'CREATE TABLE t (writer INTEGER, n INTEGER)'
write() {
	for n in $(seq 30); do
		sqlite3 -cmd '.timeout 300000' "$db" "INSERT INTO t VALUES ($1, $n)"
	done
}
writers=
for writer in 1 2 3 4; do
	write $writer &
	writers="$writers $!"
done
for writer in $writers; do
	wait "$writer"
done
want 120 sqlite3 "$db" 'SELECT count(*) FROM (SELECT DISTINCT writer, n FROM t)'
want ok sqlite3 "$db" 'PRAGMA integrity_check'

echo "BEGIN git: commit, clone, gc"
git init -q --bare -b main "$data/origin.git"
git clone -q "$data/origin.git" "$data/work" 2>&1
cd "$data/work"
git config user.name e2e
git config user.email e2e@example.com
git checkout -q -b main
for n in $(seq 20); do
	seq "$n" 2000 > "file-$n"
	git add "file-$n"
	git commit -q -m "commit $n"
done
git push -q origin main
git clone -q "$data/origin.git" "$data/clone"
git -C "$data/clone" gc -q
git -C "$data/clone" fsck --strict
want 20 git -C "$data/clone" rev-list --count main
cd /

echo "BEGIN postgres: initdb and pgbench"
cluster=$data/postgres
initdb -D "$cluster" --data-checksums --auth=trust --no-locale -U postgres > /tmp/initdb.log
pg_ctl -D "$cluster" -w -t 600 -l /tmp/postgres.log -o "-k /tmp -c listen_addresses= -c shared_buffers=32MB" start > /dev/null
trap 'pg_ctl -D "$cluster" -m immediate stop > /dev/null 2>&1 || true; tail -n 20 /tmp/postgres.log' EXIT
query="psql -h /tmp -U postgres -At -c"
pgbench -h /tmp -U postgres -i -q -s 2 postgres > /tmp/pgbench.log 2>&1
echo "BEGIN pgbench"
pgbench -h /tmp -U postgres -n -c 4 -T "$seconds" postgres > /tmp/pgbench.log
grep -E 'number of transactions|number of failed' /tmp/pgbench.log
want 1 $query "SELECT count(*) FROM (SELECT sum(abalance) FROM pgbench_accounts UNION SELECT sum(bbalance) FROM pgbench_branches UNION SELECT sum(tbalance) FROM pgbench_tellers UNION SELECT sum(delta) FROM pgbench_history) AS sums"
want t $query "SELECT count(*) > 10 FROM pgbench_history"
pg_ctl -D "$cluster" -w -t 600 stop > /dev/null
trap - EXIT
pg_checksums --check -D "$cluster" | grep -x 'Bad checksums:  0'
echo "all is stored"
