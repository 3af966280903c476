package main

import (
	"encoding/xml"
	"strings"
	"testing"
)

const sketch = `# a comment
picture 2 1
group 0 0 1 0 every <node>
ours agent 0 0 agent | a second line
aws efs 1 0 EFS
arrow agent efs TLS
`

func TestPictureIsDrawn(t *testing.T) {
	got, err := draw(sketch)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal([]byte(got), new(struct{})); err != nil {
		t.Errorf("not XML: %v\n%s", err, got)
	}
	for _, want := range []string{
		`viewBox="0 0 512 112"`, "every &lt;node&gt;", `class="ours" x="42" y="27"`, ">a second line<",
		`<line x1="216" y1="56" x2="296" y2="56"`, // from the right edge of one box to the left edge of the other
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

func TestBadPictureIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no size": "box a 0 0 A\n", "an unknown element": "picture 1 1\ncircle a 0 0\n",
		"a column without number": "picture 1 1\nbox a b c A\n", "an arrow without a box": "picture 1 1\nbox a 0 0 A\narrow a b\n",
	} {
		if got, err := draw(text); err == nil {
			t.Errorf("%s: got %s", name, got)
		}
	}
}
