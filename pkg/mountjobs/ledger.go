package mountjobs

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// AppComponentLedgerJob is the value of wellknown.LabelAppComponent on Jobs that answer administrators. The
// manager takes no part in them: ParseName does not know their names.
const AppComponentLedgerJob = "ledger-job"

// ledgerTTL is short: the plugin of kubectl deletes its Jobs, unless it is killed.
const ledgerTTL = time.Minute

// BuildLedger returns the Job that answers a request about a file system. The suffix makes its name unique.
func BuildLedger(spec Spec, suffix string, request requests.Request) (*batchv1.Job, error) {
	name := wellknown.LedgerJobPrefix + spec.FileSystemID + "-" + suffix
	spec.Number = 1 // it has none
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("building Job %s: %w", name, err)
	}
	text, err := request.Encode()
	if err != nil {
		return nil, fmt.Errorf("building Job %s: %w", name, err)
	}
	// A list needs DAC_OVERRIDE to read what other owners have, and the removal FOWNER, as a sweep does.
	pod := spec.pod(append(spec.arguments("ledger"), "--request="+string(text)), "DAC_OVERRIDE", "FOWNER")
	job := spec.job(Name{Kind: Ledger, FileSystemID: spec.FileSystemID, Number: spec.Number}, nil, pod)
	ttl := int32(ledgerTTL / time.Second)
	job.Name, job.Finalizers, job.Spec.TTLSecondsAfterFinished = name, nil, &ttl
	return job, nil
}
