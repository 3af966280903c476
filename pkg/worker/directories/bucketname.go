package directories

import "time"

// A bucket is a directory in the trash for what is due at one time, which is its name. So a sweep reads nothing
// that is not due. What is due at once is in the trash itself, and so is what a full server had no space to make a
// bucket for. No volume has the name of a bucket. The record of a directory decides when it is removed.
const (
	bucketAtOnce = ""
	bucketNever  = "NEVER"
	bucketLayout = "20060102T150405Z"
)

// Times are rounded up, so that a bucket whose time is over holds nothing that is not due. Steps
// that grow with the time to keep leave a hundred buckets for each, and a delay of a hundredth.
const (
	smallestStep = time.Second
	largestStep  = 24 * time.Hour
	stepsInKeep  = 100
)

func bucketFor(due time.Time, keep time.Duration, forever bool) string {
	switch {
	case forever:
		return bucketNever
	case keep == 0:
		return bucketAtOnce
	}
	step := min(max((keep/stepsInKeep).Truncate(time.Second), smallestStep), largestStep)
	up := due.Truncate(step)
	if up.Before(due) {
		up = up.Add(step)
	}
	return up.UTC().Format(bucketLayout)
}

// bucketTime returns when a bucket is due: zero is at once, not ok never.
func bucketTime(bucket string) (at time.Time, ok bool) {
	if bucket == bucketAtOnce {
		return time.Time{}, true
	}
	at, err := time.Parse(bucketLayout, bucket)
	return at, err == nil
}

func isBucket(name string) bool {
	_, hasTime := bucketTime(name)
	return hasTime || name == bucketNever
}

// incarnationMark is in no volume's name. The incarnations of a volume, from 1 on, lie beside each other in a bucket.
const incarnationMark = "~"
