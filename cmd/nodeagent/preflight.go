package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/efs/awsconfig"
	"gnuthought.com/efs-stunnel/pkg/efs/awsefs"
	"gnuthought.com/efs-stunnel/pkg/node/nodecheck"
	"gnuthought.com/efs-stunnel/pkg/program"
)

// terminationLog is the pod's termination message, from which the plugin reads the report: that needs no
// right to read logs.
const terminationLog = "/dev/termination-log"

// preflight checks the node for the plugin's preflight. Its argument is a nodereport.Request in JSON.
func preflight(ctx context.Context, args []string, message string, stdout, stderr io.Writer) int {
	var request nodereport.Request
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &request) != nil {
		fmt.Fprintln(stderr, "nodeagent: want preflight REQUEST, as kubectl efs-stunnel preflight runs it")
		return program.ExitUsage
	}
	report := nodecheck.Run(ctx, request, caFiles())
	if request.Region != "" {
		report.AWS = askEFS(ctx, request.Region)
	}
	text, err := json.Marshal(report)
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s\n", text)
	}
	if err == nil {
		err = os.WriteFile(message, text, 0o600)
	}
	if err != nil {
		fmt.Fprintln(stderr, "nodeagent preflight:", err)
		return program.ExitFailed
	}
	return program.ExitDone
}

// efsTimeout bounds the calls of the EFS API. Nodes without a role wait for the instance metadata.
const efsTimeout = 15 * time.Second

// askEFS lists the file systems with the identity that the node has.
func askEFS(ctx context.Context, region string) *nodereport.AWS {
	ctx, cancel := context.WithTimeout(ctx, efsTimeout)
	defer cancel()
	sdk, err := awsconfig.Load(ctx, config.WithRegion(region))
	if err != nil {
		return &nodereport.AWS{Error: err.Error()}
	}
	client := awsefs.New(sdk, awsefs.Options{
		CallTimeout: efsTimeout, Parallel: 1, Now: time.Now, Observe: func(string, string, time.Duration) {},
	})
	listing, err := client.ListFileSystems(ctx)
	if err != nil {
		return &nodereport.AWS{Error: err.Error()}
	}
	return &nodereport.AWS{FileSystems: len(listing.FileSystems)}
}
