# Reads files on a node, all at once, each in a process of its own. It prints how many bytes were read, and in
# how many seconds. bench runs it with: SETTING KIB BLOCK FILE...
use strict;
use warnings;

my ($setting, $kib, $block, @files) = @ARGV;

sub get {
	open(my $file, '<', $_[0]) or die "$_[0]: $!\n";
	return 0 + (split ' ', <$file>)[0];
}

sub put {
	open(my $file, '>', $_[0]) or die "$_[0]: $!\n";
	defined syswrite($file, $_[1]) or die "writing $_[1] to $_[0]: $!\n";
}

# settle waits until the kernel has received what it requested ahead of the end of a file.
sub settle {
	my ($received, $before) = '/sys/class/net/eth0/statistics/rx_bytes';
	do {
		$before = get($received);
		sleep 1;
	} while (get($received) - $before > 256 << 10);
}

# An open file keeps the read-ahead that its mount had then. The component read-ahead changes the kernel's
# default back within 2 seconds: then the files may have been opened too late.
sub open_all {
	for (1 .. 10) {
		put($setting, $kib);
		my @open = map { open(my $file, '<', $_) or die "$_: $!\n"; $file } @files;
		return @open if get($setting) == $kib;
	}
	die "$setting does not stay $kib\n";
}

sub read_file {
	my ($file) = @_;
	my $bytes = 0;
	while (my $n = sysread($file, my $buffer, $block) // die "reading: $!\n") {
		$bytes += $n;
	}
	return $bytes;
}

settle();
put('/proc/sys/vm/drop_caches', 3);
my @open = open_all();
my $begun = get('/proc/uptime');
pipe(my $counts, my $result) or die "pipe: $!\n";
for my $file (@open) {
	my $child = fork;
	defined $child or die "fork: $!\n";
	next if $child;
	syswrite($result, read_file($file) . "\n");
	exit;
}
close $result;
my @counts = <$counts>; # until all have ended
my $took = get('/proc/uptime') - $begun;
@counts == @files or die "only " . @counts . " of " . @files . " readers came to an end\n";
my $bytes = 0;
$bytes += $_ for @counts;
print "$bytes $took\n";
