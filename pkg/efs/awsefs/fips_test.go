package awsefs

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) Do(r *http.Request) (*http.Response, error) { return t(r) }

// TestFIPSEndpointIsTheSDKsSetting sets the region when the settings are read already, as the manager does.
func TestFIPSEndpointIsTheSDKsSetting(t *testing.T) {
	for setting, want := range map[string]string{
		"":     "elasticfilesystem.us-gov-west-1.amazonaws.com",
		"true": "elasticfilesystem-fips.us-gov-west-1.amazonaws.com",
	} {
		t.Setenv("AWS_USE_FIPS_ENDPOINT", setting)
		host := ""
		sdk, err := config.LoadDefaultConfig(t.Context(), config.WithRegion(""),
			config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("id", "secret", "")),
			config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }))
		if err != nil {
			t.Fatal(err)
		}
		sdk.Region = "us-gov-west-1"
		sdk.HTTPClient = transport(func(r *http.Request) (*http.Response, error) {
			host = r.URL.Host
			return nil, errors.New("not sent")
		})
		client := New(sdk, Options{CallTimeout: time.Minute, Parallel: 1, Observe: func(string, string, time.Duration) {}, Now: time.Now})
		if _, err := client.ListFileSystems(t.Context()); err == nil || host != want {
			t.Errorf("with AWS_USE_FIPS_ENDPOINT=%q: got %v from %s, want a request to %s", setting, err, host, want)
		}
	}
}
