package ledger

import "time"

// A bucket is a directory in the trash for what is due at one time, which is its name. So a sweep reads nothing
// that is not due. What is due at once is in the trash itself, and so is what a full server had no space to make a
// bucket for. No volume has the name of a bucket. The record of a directory decides when it is removed.
const (
	BucketAtOnce = ""
	BucketNever  = "NEVER"
	bucketLayout = "20060102T150405Z"
)

// Times are rounded up, so that a bucket whose time is over holds nothing that is not due. Steps
// that grow with the time to keep leave a hundred buckets for each, and a delay of a hundredth.
const (
	smallestStep = time.Second
	largestStep  = 24 * time.Hour
	stepsInKeep  = 100
)

// BucketFor returns the bucket of what is due at a time.
func BucketFor(due time.Time, keep time.Duration, forever bool) string {
	switch {
	case forever:
		return BucketNever
	case keep == 0:
		return BucketAtOnce
	}
	step := min(max((keep/stepsInKeep).Truncate(time.Second), smallestStep), largestStep)
	up := due.Truncate(step)
	if up.Before(due) {
		up = up.Add(step)
	}
	return up.UTC().Format(bucketLayout)
}

// BucketTime returns when a bucket is due: zero is at once, not ok never.
func BucketTime(bucket string) (at time.Time, ok bool) {
	if bucket == BucketAtOnce {
		return time.Time{}, true
	}
	at, err := time.Parse(bucketLayout, bucket)
	return at, err == nil
}

// IsBucket reports whether a name is that of a bucket.
func IsBucket(name string) bool {
	_, hasTime := BucketTime(name)
	return hasTime || name == BucketNever
}

// IncarnationMark is in no volume's name. The incarnations of a volume, from 1 on, lie beside each other in a bucket.
const IncarnationMark = "~"
