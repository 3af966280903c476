package status

import (
	"maps"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Types of conditions in the status of API objects. Each is True while nothing is wrong.
const (
	Usable          = "Usable"          // new volumes can be put on the file system, and its server, if it is the installation's own, is ready
	Listed          = "Listed"          // the EFS API lists the file system
	RootVolumeReady = "RootVolumeReady" // mount Jobs can use the file system's root volume
	Swept           = "Swept"           // sweep Jobs empty the trash
	Surveyed        = "Surveyed"        // survey Jobs count the directories
	AuthorityValid  = "AuthorityValid"  // the file system's own certificate authority, if any, is valid for a month or more
	SizesEnforced   = "SizesEnforced"   // the disk of the NFS server can enforce the sizes of volumes; only of a server with quotas

	Ready        = "Ready"        // the agent does everything for the node's tunnels that it can
	PortsFree    = "PortsFree"    // no other process gets ports of tunnels
	TableServed  = "TableServed"  // the agent serves the table as it is
	TunnelsServe = "TunnelsServe" // all tunnels of the node serve

	DiscoveryWorks  = "DiscoveryWorks"  // the file systems of the account can be listed and used
	TableStored     = "TableStored"     // the tables can be read and written
	IdentityMatches = "IdentityMatches" // the account and region are those of the table
	VolumesCorrect  = "VolumesCorrect"  // mount options of volumes do no harm
	ClockRight      = "ClockRight"      // the leader's machine has the apiserver's time
)

// AsExpected is the reason of a condition of an API object while nothing is wrong.
const AsExpected = "AsExpected"

var typesOf = map[Kind][]string{
	FileSystem:   {Usable, Listed, RootVolumeReady, Swept, Surveyed, AuthorityValid, SizesEnforced},
	Node:         {Ready, PortsFree, TableServed, TunnelsServe},
	Installation: {DiscoveryWorks, TableStored, IdentityMatches, VolumesCorrect, ClockRight},
}

// TypesOf lists the conditions in the status of the API object that is about a kind of subject.
func TypesOf(kind Kind) []string { return typesOf[kind] }

// AgentNotReady is the reason of a node whose agent does not do everything for its tunnels yet.
const AgentNotReady = "AgentNotReady"

// ClockWrong is the reason of an installation whose leader's clock is wrong. Decisions use the apiserver's time.
const ClockWrong = "ClockWrong"

// reason says what is known of all conditions with it.
type reason struct {
	conditionType string // that it makes False
	remedy        string // what an administrator does about it
}

var reasons = map[string]reason{
	wellknown.EventFileSystemUnusable: {Usable, "usually create a mount target in the cluster's VPC"},
	wellknown.EventOutOfPorts:         {Usable, "raise --stunnel-port-count of the manager"},
	wellknown.EventTableFull:          {Usable, "take targets without volumes out of the ConfigMap, once --file-system-ids or --file-system-tags keep them out"},
	wellknown.EventAddressConflict:    {Usable, "correct the addresses in efs-stunnel-pinned; of a file system that was deleted, delete the volumes"},
	wellknown.EventServerNotReady:     {Usable, "what the message says: usually a full disk, or a node that is dead"},
	wellknown.EventSizesNotEnforced:   {SizesEnforced, "what the message says: usually a disk with xfs, mounted with prjquota; or leave out nfs-server-quotas"},
	wellknown.EventAuthorityEnds:      {AuthorityValid, "put the new authority beside the old one into ca_certificates, then renew the server's certificate"},
	wellknown.EventPortConflict:       {Usable, "change the pinned port, or move the cluster's NodePort range off the tunnels' ports; of a volume: stop its pods, and correct its annotation file-system-id"},
	wellknown.EventFileSystemMissing: {Listed,
		"aws efs describe-file-systems --file-system-id ID; check --file-system-ids, --file-system-tags and the account"},
	wellknown.EventServerMissing:      {Listed, "create the server's Service again, as the component nfs-server has it"},
	wellknown.EventRootVolumeConflict: {RootVolumeReady, "delete or move the object that the message names, or remove the other installation"},

	wellknown.EventSweepFailed:  {Swept, "the log of the sweep Job; it is retried"},
	wellknown.EventSurveyFailed: {Surveyed, "the log of the survey Job; it is retried"},

	wellknown.EventDiscoveryFailed:     {DiscoveryWorks, "what the message advises: IAM permissions, credentials, network of the manager"},
	wellknown.EventFileSystemsExcluded: {DiscoveryWorks, "what the message says, or change --file-system-tags or --file-system-ids of the manager"},
	wellknown.EventServerRefused:       {DiscoveryWorks, "correct the Service that the message names"},
	wellknown.EventTableNotStored:      {TableStored, "what the message says: size, a policy or webhook, or a permission of the manager's Role"},
	wellknown.EventTableUnreadable:     {TableStored, "correct the ConfigMap that the message names"},
	wellknown.EventIdentityLooksWrong:  {IdentityMatches, "correct the manager's AWS credentials or --aws-region; if they are right, accept the account in the table"},
	wellknown.EventMountOptionHarmful:  {VolumesCorrect, "correct spec.mountOptions of the volumes, and restart pods that use them"},

	ClockWrong: {ClockRight, "set the clock of the leader's node: its time service"},

	AgentNotReady:                          {Ready, "what the message says; the logs of the node's agent and supervisor"},
	wellknown.EventTableMissing:            {TableServed, "none while a manager leads: it rebuilds the table"},
	wellknown.EventPortInEphemeralRange:    {PortsFree, "reserve the ports on the node: net.ipv4.ip_local_reserved_ports"},
	wellknown.EventPortTaken:               {TunnelsServe, "stop the process that has the port (on the node: ss -tnlp)"},
	wellknown.EventPortHijacked:            {TunnelsServe, "delete the pod with this hostPort, or the Service with this nodePort"},
	wellknown.EventTargetUnusable:          {TunnelsServe, "correct the target in the table, or what the message names"},
	wellknown.EventConfigurationRefused:    {TunnelsServe, "mount EFS_CA_FILE into both containers"},
	wellknown.EventClientCertificateFailed: {TunnelsServe, "what the message says: usually the credentials of the agents"},
	wellknown.EventTunnelUnhealthy: {TunnelsServe,
		"check the mount target: security group (TCP 2049), routes, its state in AWS"},
}

// TypeOf returns the type that a condition makes False in the status of an API object. An agent's table is
// not the manager's: for both kinds, an unreadable one has a type of its own.
func (c Condition) TypeOf() string {
	if c.Reason == wellknown.EventTableUnreadable && c.Subject.Kind == Node {
		return TableServed
	}
	return reasons[c.Reason].conditionType
}

// EndedEvent returns the reason of the event that says that a condition has ended.
func EndedEvent(of string) string {
	if of == wellknown.EventTunnelUnhealthy {
		return wellknown.EventTunnelHealthy
	}
	return wellknown.EventProblemEnded
}

// Remedy returns what an administrator does about a condition; "" for a reason that is unknown.
func Remedy(of string) string { return reasons[of].remedy }

// Reasons returns all reasons, sorted.
func Reasons() []string { return slices.Sorted(maps.Keys(reasons)) }
