package volumes

import (
	"encoding/json"
	"fmt"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// maxOperationBytes keeps one claim from filling the annotation that many share. Only a claim with
// hundreds of labels exceeds it.
const maxOperationBytes = 16 << 10

// Begin is the operation that makes the directory of a claim, or restores it from the trash. Its
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
	if claim.Restore != "" {
		operation.Kind, operation.RestoreFrom = operations.Restore, string(claim.Restore)
		operation.ShareAcrossNamespaces = class.Rules.ShareAcrossNamespaces
	} else {
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

// Cleanup is the operation that moves a volume's directory to the trash. The caller must have read
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
