package volumes

import (
	"encoding/json"
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// maxOperationBytes keeps one claim from filling the annotation that many share. Only a claim with
// hundreds of labels exceeds it.
const maxOperationBytes = 16 << 10

// Begin returns the operation that makes the directory of a claim, copies it, or restores it from the trash. Its
// record has what FromOperation needs to build the volume. The error is a Refusal. The cluster is
// the uid of the namespace kube-system.
func Begin(claim Claim, class Class, choice Choice, cluster string) (operations.Operation, error) {
	operation := operations.Operation{
		Kind: operations.Setup,
		Owner: operations.Owner{
			Volume:    VolumeName(claim.UID),
			Cluster:   cluster,
			Namespace: claim.Namespace,
			Claim:     claim.Name,
			ClaimUID:  string(claim.UID),
			Class:     class.Name,
		},
		Path: claim.Path,
	}
	switch {
	case claim.Source != "":
		operation.Kind, operation.Source = operations.Clone, claim.Copies // mode, owner and group are those of the source
	case claim.Restore != "":
		operation.Kind, operation.RestoreFrom = operations.Restore, string(claim.Restore)
		operation.ShareAcrossNamespaces = class.Rules.ShareAcrossNamespaces
	default:
		operation.Directory, operation.Rules = class.Directory, class.Rules
	}
	var err error
	if operation.Record, err = json.Marshal(newRecord(claim, class, choice)); err != nil {
		return operations.Operation{}, refuse(err.Error())
	}
	if size := len(operation.Record) + len(operation.Path); size > maxOperationBytes {
		return operations.Operation{}, refuse(fmt.Sprintf("the claim's labels and its class's mount options take %d bytes, more than %d", size, maxOperationBytes))
	}
	return operation, nil
}

// Cleanup returns the operation that moves a volume's directory to the trash. The caller must have read
// the volume and its claim from the apiserver, and NeedsCleanup must be true for them.
func Cleanup(volume Volume, cluster string) operations.Operation {
	return operations.Operation{
		Kind:  operations.Cleanup,
		Owner: volume.owner(cluster),
		Path:  volume.Path,
		Keep:  volume.Keep,
	}
}

func (v Volume) owner(cluster string) operations.Owner {
	return operations.Owner{
		Volume:    v.Name,
		Cluster:   cluster,
		Namespace: v.Namespace,
		Claim:     v.Claim,
		ClaimUID:  string(v.ClaimUID),
	}
}

// AttemptOf returns the number of an operation's attempt, from 1. It is in the record of an operation of any
// kind, so that it survives restarts of the manager and the deletion of older Jobs.
func AttemptOf(operation operations.Operation) int {
	var record struct {
		Try int `json:"try"`
	}
	if json.Unmarshal(operation.Record, &record) != nil {
		return 1
	}
	return max(record.Try, 1)
}

// WithAttempt returns the operation with the number of its attempt. The error is about its record.
func WithAttempt(operation operations.Operation, number int) (operations.Operation, error) {
	fields, err := map[string]json.RawMessage{}, error(nil)
	if len(operation.Record) > 0 {
		err = json.Unmarshal(operation.Record, &fields)
	}
	if err != nil {
		return operation, fmt.Errorf("reading the record of volume %s: %w", operation.Volume, err)
	}
	delete(fields, "try")
	if number > 1 {
		fields["try"] = json.RawMessage(fmt.Sprint(number))
	}
	operation.Record = nil
	if len(fields) > 0 {
		operation.Record, err = json.Marshal(fields)
	}
	return operation, err
}
