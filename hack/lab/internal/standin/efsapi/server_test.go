package efsapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/efs"
	"github.com/aws/aws-sdk-go-v2/service/efs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory/inventorytest"
)

const shared, archive = "fs-0123456789abcdef0", "fs-0123456789abcdef1"

type bench struct {
	inventory *inventory.Store
	faults    *Faults
	counters  *Counters
	url       string
}

func newBench(t *testing.T) bench {
	t.Helper()
	store := inventorytest.New(t, "10.90")
	b := bench{inventory: store, faults: &Faults{}, counters: &Counters{}}
	server := httptest.NewServer(New(Options{
		Inventory: store, Faults: b.faults, Counters: b.counters,
		Region: "us-east-1", AccountID: "123456789012", VPCID: "vpc-0123456789abcdef0",
		Key: Key{"AKIALAB", "secret"}, Log: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// client returns the SDK's client. It does not retry, so that each fault is visible.
func (b bench) client(change ...func(*efs.Options)) *efs.Client {
	return efs.New(efs.Options{
		Region:       "us-east-1",
		BaseEndpoint: &b.url,
		Credentials:  credentials.NewStaticCredentialsProvider("AKIALAB", "secret", ""),
		Retryer:      aws.NopRetryer{},
	}, change...)
}

func TestAddressesOfBothFamiliesAreListed(t *testing.T) {
	b := newBench(t)
	fs, err := b.inventory.CreateFileSystem(inventory.NewFileSystem{Name: "new"})
	if err != nil {
		t.Fatal(err)
	}
	for zone, kind := range map[string]inventory.AddressType{"us-east-1a": inventory.IPv6, "us-east-1b": inventory.DualStack} {
		if _, err := b.inventory.CreateMountTarget(inventory.NewMountTarget{FileSystemID: fs.ID, Zone: zone, AddressType: kind}); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := b.client().DescribeMountTargets(t.Context(), &efs.DescribeMountTargetsInput{FileSystemId: &fs.ID})
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range answer.MountTargets {
		hasIPv4 := *target.AvailabilityZoneName == "us-east-1b"
		if (target.IpAddress != nil) != hasIPv4 || target.Ipv6Address == nil {
			t.Errorf("got %v and %v in %s", target.IpAddress, target.Ipv6Address, *target.AvailabilityZoneName)
		}
	}
}

func TestDefaultFileSystemsAreListed(t *testing.T) {
	b := newBench(t)
	answer, err := b.client().DescribeFileSystems(t.Context(), &efs.DescribeFileSystemsInput{FileSystemId: new(shared)})
	if err != nil {
		t.Fatal(err)
	}
	fs := answer.FileSystems[0]
	got := []any{len(answer.FileSystems), *fs.FileSystemId, *fs.Name, fs.LifeCycleState, fs.NumberOfMountTargets, fs.CreationTime.UTC(), *fs.Tags[0].Value, fs.AvailabilityZoneName}
	want := []any{1, shared, "shared", types.LifeCycleStateAvailable, int32(2), inventorytest.Now(), "shared", (*string)(nil)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("file system (-want +got):\n%s", diff)
	}
	targets, err := b.client().DescribeMountTargets(t.Context(), &efs.DescribeMountTargetsInput{FileSystemId: new(archive)})
	if err != nil {
		t.Fatal(err)
	}
	zones := map[string]string{}
	for _, mt := range targets.MountTargets {
		zones[*mt.AvailabilityZoneName+" "+*mt.AvailabilityZoneId+" "+*mt.SubnetId+" "+*mt.VpcId] = *mt.IpAddress
	}
	wantZones := map[string]string{
		"us-east-1a use1-az1 subnet-0a vpc-0123456789abcdef0": "10.90.1.201",
		"us-east-1b use1-az2 subnet-0b vpc-0123456789abcdef0": "10.90.2.201",
	}
	if diff := cmp.Diff(wantZones, zones); diff != "" {
		t.Errorf("mount targets (-want +got):\n%s", diff)
	}
}

func TestPagesContainEveryFileSystemOnce(t *testing.T) {
	b := newBench(t)
	want := []string{shared, archive}
	for i := range 5 {
		fs, err := b.inventory.CreateFileSystem(inventory.NewFileSystem{Name: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fs.ID)
	}
	if err := b.faults.Set(Fault{Kind: PageSize, Size: 2}); err != nil {
		t.Fatal(err)
	}
	var got []string
	calls := 0
	for p := efs.NewDescribeFileSystemsPaginator(b.client(), nil); p.HasMorePages(); calls++ {
		answer, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, fs := range answer.FileSystems {
			got = append(got, *fs.FileSystemId)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || calls != 4 {
		t.Errorf("%d calls, want 4; (-want +got):\n%s", calls, diff)
	}
}

func TestPagingContinuesAfterADeletion(t *testing.T) {
	b := newBench(t)
	one := int32(1)
	p := efs.NewDescribeFileSystemsPaginator(b.client(), &efs.DescribeFileSystemsInput{MaxItems: &one})
	first, err := p.NextPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := *first.FileSystems[0].FileSystemId
	if err := b.inventory.DeleteFileSystem(seen, true); err != nil {
		t.Fatal(err)
	}
	second, err := p.NextPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(second.FileSystems) != 1 || *second.FileSystems[0].FileSystemId == seen {
		t.Errorf("second page after %s: %v", seen, second.FileSystems)
	}
}

func TestMountTargetsAndAccessPointsHavePages(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		if _, err := b.inventory.CreateAccessPoint(inventory.NewAccessPoint{FileSystemID: shared, Path: fmt.Sprintf("/%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	one := int32(1)
	targets, pages := 0, 0
	for p := efs.NewDescribeMountTargetsPaginator(b.client(), &efs.DescribeMountTargetsInput{FileSystemId: new(shared), MaxItems: &one}); p.HasMorePages(); pages++ {
		answer, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		targets += len(answer.MountTargets)
	}
	points := 0
	for p := efs.NewDescribeAccessPointsPaginator(b.client(), &efs.DescribeAccessPointsInput{FileSystemId: new(shared), MaxResults: &one}); p.HasMorePages(); pages++ {
		answer, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		points += len(answer.AccessPoints)
	}
	if targets != 2 || points != 3 || pages != 5 {
		t.Errorf("%d mount targets, %d access points, %d pages; want 2, 3, 5", targets, points, pages)
	}
}

func TestAccessPointIsShownAsCreated(t *testing.T) {
	b := newBench(t)
	p, err := b.inventory.CreateAccessPoint(inventory.NewAccessPoint{
		FileSystemID: shared, Name: "team", Path: "/team",
		PosixUser: &inventory.PosixUser{UID: 1000, GID: 2000}, CreationInfo: &inventory.CreationInfo{OwnerUID: 1, OwnerGID: 2, Permissions: "0750"},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.client().DescribeAccessPoints(t.Context(), &efs.DescribeAccessPointsInput{AccessPointId: &p.ID})
	if err != nil {
		t.Fatal(err)
	}
	got := answer.AccessPoints[0]
	if *got.RootDirectory.Path != "/team" || *got.PosixUser.Uid != 1000 || *got.RootDirectory.CreationInfo.Permissions != "0750" || *got.Name != "team" {
		t.Errorf("got %+v", got)
	}
}

func TestZoneAndReplicationAreShown(t *testing.T) {
	b := newBench(t)
	fs, err := b.inventory.CreateFileSystem(inventory.NewFileSystem{Zone: "us-east-1b", State: inventory.Creating})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.inventory.UpdateFileSystem(fs.ID, inventory.FileSystemChange{Replicating: new(true)}); err != nil {
		t.Fatal(err)
	}
	answer, err := b.client().DescribeFileSystems(t.Context(), &efs.DescribeFileSystemsInput{FileSystemId: &fs.ID})
	if err != nil {
		t.Fatal(err)
	}
	got := answer.FileSystems[0]
	if *got.AvailabilityZoneName != "us-east-1b" || *got.AvailabilityZoneId != "use1-az2" || got.LifeCycleState != types.LifeCycleStateCreating ||
		got.FileSystemProtection.ReplicationOverwriteProtection != types.ReplicationOverwriteProtectionReplicating {
		t.Errorf("got %+v", got)
	}
}

// result has the parts of an error that a client sees.
type result struct {
	Code   string
	Status int
}

func resultOf(err error) result {
	var r result
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		r.Code = api.ErrorCode()
	}
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		r.Status = response.HTTPStatusCode()
	}
	return r
}

func TestErrorsHaveTheCodesAndStatusesOfEFS(t *testing.T) {
	b := newBench(t)
	none := "fs-00000000000000bad"
	key := func(id, secret string) func(*efs.Options) {
		return func(o *efs.Options) { o.Credentials = credentials.NewStaticCredentialsProvider(id, secret, "token") }
	}
	list := func(change ...func(*efs.Options)) error {
		_, err := b.client(change...).DescribeFileSystems(t.Context(), nil)
		return err
	}
	describe := func(in efs.DescribeMountTargetsInput) error {
		_, err := b.client().DescribeMountTargets(t.Context(), &in)
		return err
	}
	points := func(in efs.DescribeAccessPointsInput) error {
		_, err := b.client().DescribeAccessPoints(t.Context(), &in)
		return err
	}
	tests := map[string]struct {
		err  error
		want result
	}{
		"session token of the role":  {list(key("AKIALAB", "secret")), result{}},
		"no signature":               {list(func(o *efs.Options) { o.Credentials = aws.AnonymousCredentials{} }), result{"MissingAuthenticationTokenException", 403}},
		"unknown key":                {list(key("AKIAOTHER", "secret")), result{"UnrecognizedClientException", 403}},
		"wrong secret":               {list(key("AKIALAB", "guess")), result{"InvalidSignatureException", 403}},
		"wrong region":               {list(func(o *efs.Options) { o.Region = "eu-west-1" }), result{"InvalidSignatureException", 403}},
		"unknown file system":        {describe(efs.DescribeMountTargetsInput{FileSystemId: &none}), result{"FileSystemNotFound", 404}},
		"unknown mount target":       {describe(efs.DescribeMountTargetsInput{MountTargetId: new("fsmt-1")}), result{"MountTargetNotFound", 404}},
		"unknown access point":       {describe(efs.DescribeMountTargetsInput{AccessPointId: new("fsap-1")}), result{"AccessPointNotFound", 404}},
		"all mount targets":          {describe(efs.DescribeMountTargetsInput{}), result{"BadRequest", 400}},
		"foreign marker":             {describe(efs.DescribeMountTargetsInput{FileSystemId: new(shared), Marker: new("x")}), result{"BadRequest", 400}},
		"access points of no one":    {points(efs.DescribeAccessPointsInput{FileSystemId: &none}), result{"FileSystemNotFound", 404}},
		"access point that is gone":  {points(efs.DescribeAccessPointsInput{AccessPointId: new("fsap-1")}), result{"AccessPointNotFound", 404}},
		"access points two ways":     {points(efs.DescribeAccessPointsInput{FileSystemId: &none, AccessPointId: new("fsap-1")}), result{"BadRequest", 400}},
		"file system deleted before": {create(b.client().DescribeFileSystems(t.Context(), &efs.DescribeFileSystemsInput{FileSystemId: &none})), result{"FileSystemNotFound", 404}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, resultOf(tt.err)); diff != "" {
				t.Errorf("%v (-want +got):\n%s", tt.err, diff)
			}
		})
	}
	var typed *types.FileSystemNotFound
	if err := tests["unknown file system"].err; !errors.As(err, &typed) || *typed.ErrorCode_ != "FileSystemNotFound" {
		t.Errorf("%v is not the SDK's FileSystemNotFound with its code", err)
	}
}

func create[T any](_ T, err error) error { return err }

func TestUnknownOperationsAreNotFound(t *testing.T) {
	b := newBench(t)
	_, err := b.client().DeleteFileSystem(t.Context(), &efs.DeleteFileSystemInput{FileSystemId: new(shared)})
	if got := resultOf(err); got.Status != http.StatusNotFound && got.Status != http.StatusMethodNotAllowed {
		t.Errorf("got %v", err)
	}
}
