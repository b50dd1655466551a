package cloud

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/smithy-go"
	"gocloud.dev/gcerrors"

	"github.com/ringo-ml/ringo/internal/remote/store"
)

// Texts for permanent errors of clouds, with the remedy.
const (
	noBucket      = "there is no such bucket or container: make it, or mend its name"
	noCredentials = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of ~/.aws (?profile=P)"
	badCredential = "these credentials are not accepted"
	noPermission  = "these credentials may not do it: listing, reading, writing and removing must be allowed"
	otherRegion   = "the bucket is in another region: name that (?region=R)"
)

// refusals maps error codes of clouds that a retry would repeat to texts.
var refusals = map[string]string{ // never written
	"NoSuchBucket": noBucket, "ContainerNotFound": noBucket,
	"InvalidAccessKeyId": badCredential, "SignatureDoesNotMatch": badCredential, "InvalidToken": badCredential, "ExpiredToken": badCredential,
	"AuthenticationFailed": badCredential, "AuthorizationFailure": badCredential, "InvalidAuthenticationInfo": badCredential,
	"AccessDenied": noPermission, "Forbidden": noPermission, "AllAccessDisabled": noPermission, "AuthorizationPermissionMismatch": noPermission, "InsufficientAccountPermissions": noPermission,
	"PermanentRedirect": otherRegion, "MovedPermanently": otherRegion, "AuthorizationHeaderMalformed": otherRegion,
}

// fault is an error of a client with a text for the user.
type fault struct {
	text string
	err  error
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.err }

// known converts an error of a client to an error of Store.
func known(err error) error {
	if err == nil {
		return nil
	}
	code, said := answer(err)
	if means := refusals[code]; means != "" {
		return &store.RefusedError{Err: &fault{means + " (" + said + ")", err}}
	}
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case gcerrors.Code(err) == gcerrors.NotFound:
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case strings.Contains(err.Error(), "get credentials: "): // S3's client has no error type for missing credentials
		return &store.RefusedError{Err: &fault{noCredentials, err}}
	case errors.As(err, &dns):
		return &fault{fmt.Sprintf("no host %s is known: %s", dns.Name, dns.Err), err}
	case errors.As(err, &op) && op.Op == "dial":
		return &fault{fmt.Sprintf("%v cannot be reached: %v", op.Addr, op.Err), err}
	case code != "":
		err = &fault{said, err}
	}
	switch gcerrors.Code(err) {
	case gcerrors.PermissionDenied, gcerrors.InvalidArgument, gcerrors.Unimplemented:
		return &store.RefusedError{Err: err}
	}
	return err
}

// answer returns the error code of a cloud's response, and the code with the message; "" without a
// response.
func answer(err error) (code, said string) {
	var aws smithy.APIError
	var azure *azcore.ResponseError
	switch {
	case errors.As(err, &aws):
		if code, said = aws.ErrorCode(), aws.ErrorMessage(); said == "" || said == code {
			return code, code
		}
		return code, code + ": " + said
	case errors.As(err, &azure) && azure.ErrorCode != "":
		return azure.ErrorCode, fmt.Sprintf("%s, status %d", azure.ErrorCode, azure.StatusCode)
	case errors.As(err, &azure):
		return "", fmt.Sprintf("status %d", azure.StatusCode)
	}
	return "", ""
}

// unopened returns the error of a URL that names no bucket.
func unopened(scheme, shown string, err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // without the URL
	}
	if scheme == "azblob" && strings.Contains(err.Error(), "AccountName") {
		err = &fault{"no account is named: set AZURE_STORAGE_ACCOUNT, and AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN if not a login of az is meant, or AZURE_STORAGE_CONNECTION_STRING", err}
	}
	return fmt.Errorf("%s: %w", shown, err)
}
