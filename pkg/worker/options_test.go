package worker

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

func noEnvironment(string) string { return "" }

func TestParseOptions(t *testing.T) {
	o, err := parseOptions([]string{"--file-system-id=fs-1", "--aliases=fs-2,fs-3", "--deadline=2m", "--deadline-margin=10s"}, noEnvironment, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.command != commandRun || o.fileSystemID != "fs-1" || !slices.Equal(o.aliases, []string{"fs-2", "fs-3"}) {
		t.Errorf("got %+v", o)
	}
	if o.timeLimit() != 110*time.Second || o.directory != "/efs" || o.operations != defaultOperations || o.terminationLog != "/dev/termination-log" {
		t.Errorf("got %+v", o)
	}
}

func TestParseOptionsTakesTheFileFromTheEnvironment(t *testing.T) {
	environment := func(string) string { return "/from/environment" }
	o, err := parseOptions([]string{"run", "--file-system-id=fs-1"}, environment, nil)
	if err != nil || o.operations != "/from/environment" {
		t.Errorf("got %q, error %v", o.operations, err)
	}
	o, err = parseOptions([]string{"run", "--file-system-id=fs-1", "--operations=/from/flag"}, environment, nil)
	if err != nil || o.operations != "/from/flag" {
		t.Errorf("the flag must win: got %q, error %v", o.operations, err)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"another command":               {[]string{"rm"}, `no command "rm"`},
		"an argument that is no flag":   {[]string{"run", "--file-system-id=fs-1", "/efs"}, `argument "/efs"`},
		"a flag that is not there":      {[]string{"--force"}, "-force"},
		"no file system":                {nil, "--file-system-id is missing"},
		"no file system to sweep":       {[]string{"sweep"}, "--file-system-id is missing"},
		"a file system with a space":    {[]string{"--file-system-id=fs 1"}, `"fs 1"`},
		"an empty alias":                {[]string{"--file-system-id=fs-1", "--aliases=fs-2,,fs-3"}, `--aliases ""`},
		"a relative directory":          {[]string{"--file-system-id=fs-1", "--directory=efs"}, `--directory "efs"`},
		"no operations":                 {[]string{"--file-system-id=fs-1", "--operations="}, "--operations is empty"},
		"operations of a survey":        {[]string{"survey", "--file-system-id=fs-1", "--operations=/x"}, "-operations"},
		"a survey after no path":        {[]string{"survey", "--file-system-id=fs-1", "--after=../x"}, "--after"},
		"a sweep after a path":          {[]string{"sweep", "--file-system-id=fs-1", "--after=/x"}, "-after"},
		"operations of a sweep":         {[]string{"sweep", "--file-system-id=fs-1", "--operations=/x"}, "-operations"},
		"no place for the report":       {[]string{"--file-system-id=fs-1", "--termination-log="}, "--termination-log is empty"},
		"a deadline that is no time":    {[]string{"--file-system-id=fs-1", "--deadline=soon"}, `"soon"`},
		"no time left for the work":     {[]string{"--file-system-id=fs-1", "--deadline=30s"}, "more than --deadline-margin, which is 30s"},
		"a margin before the beginning": {[]string{"--file-system-id=fs-1", "--deadline-margin=-1s"}, "--deadline-margin -1s"},
		"an unknown level":              {[]string{"--file-system-id=fs-1", "--log-level=loud"}, `"loud"`},
		"an unknown format":             {[]string{"--file-system-id=fs-1", "--log-format=xml"}, "want text or json"},
		"no request":                    {[]string{"ledger", "--file-system-id=fs-1"}, "--request is missing"},
		"a damaged request":             {[]string{"ledger", "--file-system-id=fs-1", "--request={"}, "reading the request"},
		"a request of a sweep":          {[]string{"sweep", "--file-system-id=fs-1", "--request={}"}, "-request"},
		"a flag of version":             {[]string{"version", "--file-system-id=fs-1"}, "-file-system-id"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(tt.args, noEnvironment, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if _, err := parseOptions([]string{"sweep", "-h"}, noEnvironment, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	if text := help.String(); !strings.Contains(text, "-deadline-margin") || strings.Contains(text, "-operations") {
		t.Errorf("help of sweep:\n%s", text)
	}
}

// TestArgumentsOfJobs holds pkg/mountjobs, which must not be imported here, to what mountjob
// takes: its golden Jobs are read.
func TestArgumentsOfJobs(t *testing.T) {
	files, err := filepath.Glob("../mountjobs/testdata/*-job.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("golden Jobs %v, error %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			container := containerOf(t, file)
			o, err := parseOptions(container.Args, noEnvironment, nil)
			if err != nil {
				t.Fatal(err)
			}
			if o.fileSystemID != "fs-34a3p3" || o.directory != wellknown.MountJobMountPath || o.timeLimit() <= 0 {
				t.Errorf("got %+v", o)
			}
			command, _, _ := strings.Cut(filepath.Base(file), "-")
			wanted := map[string]string{"mount": commandRun, "retry": commandRun, "sweep": commandSweep, "ledger": commandLedger, "survey": commandSurvey, "clone": commandClone}[command]
			if (o.operations == defaultOperations) != (wanted == commandRun || wanted == commandClone) || o.command != wanted || container.Command[0] != "/usr/local/bin/mountjob" {
				t.Errorf("command %v gives %+v", container.Command, o)
			}
		})
	}
}

type goldenContainer struct{ Command, Args []string }

func containerOf(t *testing.T, file string) goldenContainer {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var job struct {
		Spec struct {
			Template struct {
				Spec struct{ Containers []goldenContainer }
			}
		}
	}
	if err := yaml.Unmarshal(data, &job); err != nil {
		t.Fatal(err)
	}
	return job.Spec.Template.Spec.Containers[0]
}
