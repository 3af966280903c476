package wellknown

// Tags of the access points that the manager creates. The driver's allows the manager what AWS's policy for the AWS EFS
// CSI driver allows; the others find an access point whose volume was never created.
const (
	TagDriver  = "efs.csi.aws.com/cluster"
	TagCluster = keyPrefix + "cluster"
	TagClaim   = keyPrefix + "claim"
	TagVolume  = keyPrefix + "volume"
)
