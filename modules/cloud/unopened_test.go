package cloud

import (
	"errors"
	"testing"
)

// What Azure's client lacks is said in its users' words. It reads the environment once in a process, so that this cannot be seen beside other tests.
func TestUnopened(t *testing.T) {
	got := unopened("azblob", "azblob://b/run", errors.New("azureblob: Options.AccountName is required")).Error()
	if want := "azblob://b/run: no account is named: set AZURE_STORAGE_ACCOUNT, and AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN if not a login of az is meant, or AZURE_STORAGE_CONNECTION_STRING"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
