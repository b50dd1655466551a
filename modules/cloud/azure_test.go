package cloud_test

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/ringo-ml/ringo/internal/freeport"
)

// serveAzure serves the protocol of Azure's blobs on this host by Azurite, with a container named jobs, and returns what stands behind ?
// in URLs of it: Azure's client reads the environment once in a process. Without Azurite the test is left out: its install takes longer than all tests of this module.
func serveAzure(t *testing.T) (query string) {
	t.Helper()
	azurite, err := exec.LookPath("azurite-blob")
	if err != nil {
		t.Skip("no azurite-blob: npm install --ignore-scripts azurite, and have node_modules/.bin in PATH")
	}
	host, port, err := net.SplitHostPort(freeport.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	key := base64.StdEncoding.EncodeToString([]byte("a key that only this test uses"))
	dir := t.TempDir()
	cmd := exec.Command(azurite, "--blobHost", host, "--blobPort", port, "--location", dir, "--skipApiVersionCheck", "--disableTelemetry", "--silent")
	cmd.Env = append(os.Environ(), "AZURITE_ACCOUNTS=ringo:"+key)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	text := fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=ringo;AccountKey=%s;BlobEndpoint=http://%s:%s/ringo;", key, host, port)
	t.Setenv("AZURE_STORAGE_ACCOUNT", "ringo")
	t.Setenv("AZURE_STORAGE_KEY", key)
	client, err := azblob.NewClientFromConnectionString(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("azurite does not answer: %v\n%s", err, said)
		}
	}
	if _, err := client.CreateContainer(t.Context(), "jobs", nil); err != nil {
		t.Fatal(err)
	}
	return "?protocol=http&localemu=true&domain=" + url.QueryEscape(host+":"+port)
}
