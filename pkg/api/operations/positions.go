package operations

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// positions are the indexes of operations in their batch, ascending; as JSON "0-3,7".
type positions []int

// maxPositions is more than a batch can have. It bounds the memory that a forged range takes.
const maxPositions = 1 << 16

// MarshalJSON writes runs as ranges.
func (p positions) MarshalJSON() ([]byte, error) {
	var out strings.Builder
	for i := 0; i < len(p); {
		end := i
		for end+1 < len(p) && p[end+1] == p[end]+1 {
			end++
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(strconv.Itoa(p[i]))
		if end > i {
			out.WriteString("-" + strconv.Itoa(p[end]))
		}
		i = end + 1
	}
	return json.Marshal(out.String())
}

// UnmarshalJSON refuses what MarshalJSON does not write: no ranges, or ranges that overlap or do
// not ascend.
func (p *positions) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*p = nil
	next := 0 // the lowest that may follow
	for part := range strings.SplitSeq(text, ",") {
		from, to, err := parseRange(part)
		if err != nil || from < next {
			return errors.New("operations are not listed as ascending ranges")
		}
		for i := from; i <= to; i++ {
			*p = append(*p, i)
		}
		next = to + 1
	}
	return nil
}

func parseRange(text string) (from, to int, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err = strconv.Atoi(first)
	if err != nil {
		return 0, 0, err
	}
	to, err = strconv.Atoi(last)
	if err != nil {
		return 0, 0, err
	}
	if from < 0 || to < from || to >= maxPositions {
		return 0, 0, errors.New("not a range")
	}
	return from, to, nil
}
