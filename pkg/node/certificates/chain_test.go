package certificates_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go/logging"
	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/node/certificates"
	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
)

// chainWith makes a chain that finds no credentials but those of the variables.
func chainWith(t *testing.T, env map[string]string) certificates.Chain {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	t.Setenv("AWS_CONFIG_FILE", nowhere)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for name, value := range env {
		t.Setenv(name, value)
	}
	return certificates.Chain{Log: logging.Nop{}}
}

func serve(t *testing.T, answer func(requests int, w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		answer(requests, w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestLastingCredentialsOfTheEnvironment(t *testing.T) {
	chain := chainWith(t, map[string]string{"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "SECRET"})
	got, err := chain.Find(t.Context(), "us-east-1")
	want := clientcert.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("credentials (-want +got), %v:\n%s", err, diff)
	}
}

// As EKS Pod Identity serves them. Each call gets the credentials of that moment.
func TestContainerCredentials(t *testing.T) {
	url := serve(t, func(requests int, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"AccessKeyId": "AKID%d", "SecretAccessKey": "SECRET", "Token": "TOKEN", "Expiration": "2999-01-02T03:04:0%dZ"}`, requests, requests)
	})
	chain := chainWith(t, map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": url})
	for requests := 1; requests <= 2; requests++ {
		got, err := chain.Find(t.Context(), "us-east-1")
		want := clientcert.Credentials{
			AccessKeyID: fmt.Sprint("AKID", requests), SecretAccessKey: "SECRET", SessionToken: "TOKEN",
			Expires: time.Date(2999, 1, 2, 3, 4, requests, 0, time.UTC),
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("credentials (-want +got), %v:\n%s", err, diff)
		}
	}
}

// As with IAM roles for service accounts.
func TestRefusedRole(t *testing.T) {
	url := serve(t, func(requests int, w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized to perform %s</Message></Error>`+
			`<RequestId>id-%d</RequestId></ErrorResponse>`, r.FormValue("Action"), requests)
	})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	chain := chainWith(t, map[string]string{
		"AWS_ENDPOINT_URL_STS": url, "AWS_ROLE_ARN": "arn:aws:iam::111122223333:role/efs-stunnel", "AWS_WEB_IDENTITY_TOKEN_FILE": token,
	})
	for range 2 {
		_, err := chain.Find(t.Context(), "us-east-1")
		const want = "STS AssumeRoleWithWebIdentity: AccessDenied: Not authorized to perform AssumeRoleWithWebIdentity"
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestChainWithoutCredentials(t *testing.T) {
	if got, err := chainWith(t, nil).Find(t.Context(), "us-east-1"); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %+v, %v; want an error of one line", got, err)
	}
	chain := chainWith(t, map[string]string{"AWS_PROFILE": "absent"})
	if _, err := chain.Find(t.Context(), "us-east-1"); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("got %v, want an error that names the profile", err)
	}
}
