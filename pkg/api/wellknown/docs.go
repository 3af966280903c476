package wellknown

// DocsURL is the address of the documentation, as in the alerts' runbooks. Texts for users lead there: they have no
// copy of the repository.
const DocsURL = "https://gnuthought.com/efs-stunnel/docs/"
