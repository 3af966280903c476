package settings_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

// values has one setting of each type.
type values struct {
	Count  int
	Rate   float32
	Wait   time.Duration
	On     bool
	Color  string
	Hue    string
	Word   string
	Words  []string
	Number int64
}

func (w *values) set() *settings.Set {
	s := settings.New("program")
	g := s.Group("First things")
	g.Add(settings.Integer(&w.Count, 1, 10), "count", "COUNT", "how many")
	g.Add(settings.Positive(&w.Rate), "rate", "", "how `often`")
	g.Add(settings.Duration(&w.Wait, time.Second, time.Hour), "wait", "WAIT", "how long")
	g = s.Group("Second things")
	g.Add(settings.Bool(&w.On), "on", "ON", "whether")
	g.Add(settings.OneOf(&w.Color, "color", "red", "green"), "color", "", "which")
	g.Add(settings.Text(&w.Hue, "hue", lower), "hue", "", "which one, with the letter of help")
	g.Add(settings.Text(&w.Word, "word", lower), "word", "", "what")
	g.Add(settings.List(&w.Words, "words", lower), "words", "WORDS", "what all")
	g.Add(settings.Parsed(&w.Number, "hex", func(text string) (int64, error) {
		return strconv.ParseInt(text, 16, 64)
	}, nil), "number", "", "in base 16")
	return s
}

func lower(text string) error {
	if text != strings.ToLower(text) {
		return errors.New("want lower case")
	}
	return nil
}

func TestParse(t *testing.T) {
	defaults := values{Count: 3, Wait: time.Minute, Color: "red"}
	tests := map[string]struct {
		args string
		env  map[string]string
		want func(*values)
	}{
		"defaults stay":                      {want: func(*values) {}},
		"a flag":                             {args: "--count=4", want: func(w *values) { w.Count = 4 }},
		"a flag and its value apart":         {args: "--count 4", want: func(w *values) { w.Count = 4 }},
		"a variable":                         {env: map[string]string{"COUNT": "5"}, want: func(w *values) { w.Count = 5 }},
		"a flag wins":                        {args: "--count=4", env: map[string]string{"COUNT": "5"}, want: func(w *values) { w.Count = 4 }},
		"a flag wins over a bad variable":    {args: "--count=4", env: map[string]string{"COUNT": "x"}, want: func(w *values) { w.Count = 4 }},
		"an empty variable is none":          {env: map[string]string{"COUNT": ""}, want: func(*values) {}},
		"a variable that no setting has":     {env: map[string]string{"COLOR": "green"}, want: func(*values) {}},
		"seconds":                            {args: "--wait=90", want: func(w *values) { w.Wait = 90 * time.Second }},
		"parts of seconds":                   {args: "--wait=1.5", want: func(w *values) { w.Wait = 1500 * time.Millisecond }},
		"a duration":                         {env: map[string]string{"WAIT": "2m"}, want: func(w *values) { w.Wait = 2 * time.Minute }},
		"a switch":                           {args: "--on", want: func(w *values) { w.On = true }},
		"a switch that is off":               {args: "--on=false", env: map[string]string{"ON": "true"}, want: func(*values) {}},
		"a choice in any case":               {args: "--color=GREEN", want: func(w *values) { w.Color = "green" }},
		"a number with a fraction":           {args: "--rate=0.5", want: func(w *values) { w.Rate = 0.5 }},
		"a list, spaces and commas too many": {args: "--words=a,,b,", want: func(w *values) { w.Words = []string{"a", "b"} }},
		"a type with a parser of its own":    {args: "--number=ff", want: func(w *values) { w.Number = 255 }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, want := defaults, defaults
			tt.want(&want)
			if err := got.set().Parse(strings.Fields(tt.args), func(key string) string { return tt.env[key] }); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("settings mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseErrorsNameTheSettingAsItWasGiven(t *testing.T) {
	tests := map[string]struct {
		args string
		env  map[string]string
		want string
	}{
		"a flag's value":                      {args: "--count=11", want: `--count "11": want a whole number from 1 to 10`},
		"a variable's":                        {env: map[string]string{"COUNT": "many"}, want: `COUNT "many": want a whole number from 1 to 10`},
		"a duration":                          {args: "--wait=soon", want: `--wait "soon": want a duration such as 90s or 5m, or a number of seconds, from 1s to 1h`},
		"too long":                            {env: map[string]string{"WAIT": "3601"}, want: `WAIT "3601": want a duration such as 90s or 5m, or a number of seconds, from 1s to 1h`},
		"too short":                           {args: "--wait=0", want: `--wait "0": want a duration such as 90s or 5m, or a number of seconds, from 1s to 1h`},
		"not a number":                        {args: "--wait=NaN", want: `--wait "NaN": want a duration such as 90s or 5m, or a number of seconds, from 1s to 1h`},
		"a switch":                            {args: "--on=maybe", want: `--on "maybe": want true or false`},
		"a choice":                            {args: "--color=blue", want: `--color "blue": want red or green`},
		"a rate":                              {args: "--rate=NaN", want: `--rate "NaN": want a number above 0, up to 1000000`},
		"a rate of 0":                         {args: "--rate=0", want: `--rate "0": want a number above 0, up to 1000000`},
		"an item":                             {env: map[string]string{"WORDS": "a,B"}, want: `WORDS "a,B": want lower case`},
		"no value":                            {args: "--count", want: `--count: want a value`},
		"unknown":                             {args: "--cuont=3", want: `--cuont: there is no such flag; see --help`},
		"one dash":                            {args: "-count=3", want: `-count: flags begin with two dashes; write --count`},
		"one dash, apart":                     {args: "-wait 3", want: `-wait: flags begin with two dashes; write --wait`},
		"one dash, where help has the letter": {args: "--count=3 -hue=red", want: `-hue: flags begin with two dashes; write --hue`},
		"one dash, unknown":                   {args: "-run-server=false", want: `-run-server=false: there is no such flag; see --help`},
		"unknown, short":                      {args: "-c 3", want: `-c: there is no such flag; see --help`},
		"stray":                               {args: "--count=3 run", want: `argument "run": program takes flags only`},
		"a switch apart":                      {args: "--on false", want: `argument "false": program takes flags only`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := new(values).set().Parse(strings.Fields(tt.args), func(key string) string { return tt.env[key] })
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestWrongNamesTheSettingAsItWasGiven(t *testing.T) {
	var w values
	s := w.set()
	if err := s.Parse([]string{"--wait=5"}, func(key string) string { return map[string]string{"COUNT": "7"}[key] }); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("want less than the others")
	for name, want := range map[string]string{
		"count": `COUNT "7": want less than the others`,
		"wait":  `--wait "5s": want less than the others`,
		"color": `--color "": want less than the others`,
	} {
		if got := s.Wrong(name, cause); got.Error() != want || !errors.Is(got, cause) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got, want := s.Names("count"), "--count or COUNT"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHelp(t *testing.T) {
	w := values{Count: 3, Wait: 5 * time.Minute}
	s := w.set()
	if err := s.Parse([]string{"--help"}, func(string) string { return "" }); !errors.Is(err, settings.ErrHelp) {
		t.Errorf("got %v, want %v", err, settings.ErrHelp)
	}
	help := s.Help()
	for _, want := range []string{
		"\nFirst things:\n", "--count int ", "how many [$COUNT] (default 3)", "--rate often ", "(default 5m)", "\nSecond things:\n", "--on ",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("%q is missing in\n%s", want, help)
		}
	}
}

func TestHelpEndsWithWhatIsRarelyNeeded(t *testing.T) {
	var w values
	s := settings.New("program")
	g := s.Group("First things")
	g.Rare().Add(settings.Bool(&w.On), "on", "", "whether")
	g.Add(settings.Integer(&w.Count, 0, 10), "count", "", "how many")
	s.Group("Second things").Rare().Add(settings.Text(&w.Word, "word", lower), "word", "", "what")
	if err := s.Parse([]string{"--on", "--word=a", "--count=1"}, func(string) string { return "" }); err != nil || !w.On || w.Word != "a" {
		t.Fatalf("got %+v, %v", w, err)
	}
	help := s.Help()
	common, rare, found := strings.Cut(help, "\nRarely needed:\n")
	if !found || !strings.Contains(common, "--count") || strings.Contains(common, "--on") || strings.Contains(help, "Second things") {
		t.Errorf("got the help\n%s", help)
	}
	if !strings.Contains(rare, "--on") || !strings.Contains(rare, "--word") {
		t.Errorf("rarely needed are only\n%s", rare)
	}
}

func ExampleShort() {
	for _, d := range []time.Duration{90 * time.Second, 5 * time.Minute, 2 * time.Hour, 10 * time.Hour, time.Hour + time.Minute} {
		fmt.Println(settings.Short(d))
	}
	// Output:
	// 1m30s
	// 5m
	// 2h
	// 10h
	// 1h1m
}
