package operations

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestPositions(t *testing.T) {
	for text, want := range map[string]positions{
		`"0"`:         {0},
		`"0-1"`:       {0, 1},
		`"0,2"`:       {0, 2},
		`"0-3,7"`:     {0, 1, 2, 3, 7},
		`"5,7-9,511"`: {5, 7, 8, 9, 511},
		`"65535"`:     {maxPositions - 1},
	} {
		t.Run(text, func(t *testing.T) {
			if data, err := json.Marshal(want); err != nil || string(data) != text {
				t.Errorf("%v is written as %s, error %v", want, data, err)
			}
			got := positions{99} // as it was before is no part of the result
			if err := json.Unmarshal([]byte(text), &got); err != nil || !slices.Equal(got, want) {
				t.Errorf("read as %v, error %v, want %v", got, err, want)
			}
		})
	}
}

func TestPositionsRefuse(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                    `""`,
		"a number":                   `0`,
		"a list":                     `[0,1]`,
		"a comma at the end":         `"0,"`,
		"a word":                     `"all"`,
		"a negative one":             `"-1"`,
		"a negative start":           `"-2--1"`,
		"a range without its start":  `"-3"`,
		"a range without its end":    `"3-"`,
		"a range from high to low":   `"3-2"`,
		"a range of three":           `"1-2-3"`,
		"one that does not ascend":   `"2,1"`,
		"one that is listed twice":   `"1,1"`,
		"a range that overlaps":      `"0-2,2-3"`,
		"one inside an earlier one":  `"0-5,3"`,
		"one beyond every batch":     `"65536"`,
		"a range beyond every batch": `"0-65536"`,
		"a number of many digits":    `"99999999999999999999"`,
		"a space":                    `"0, 1"`,
	} {
		t.Run(name, func(t *testing.T) {
			var got positions
			if err := json.Unmarshal([]byte(text), &got); err == nil {
				t.Errorf("%s is read as %v", text, got)
			}
		})
	}
}
