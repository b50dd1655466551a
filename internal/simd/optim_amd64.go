package simd

var optim512Level = optimLevel{
	sgd: sgdPlain512, momentum: momentum512, adagrad: adagrad512, adamW: adamW512,
	sgdRows: sgdRows512, adagradRows: adagradRows512, adamRows: adamRows512,
	ftrl: ftrl512, momentumRows: momentumRows512, adamOwnRows: adamOwnRows512,
	rowWiseAdagrad: rowWiseAdagrad512, ftrlRows: ftrlRows512, clampRows: clampRows512,
}

var optim2Level = optimLevel{
	sgd: sgdPlain2, momentum: momentum2, adagrad: adagrad2, adamW: adamW2,
	sgdRows: sgdRows2, adagradRows: adagradRows2, adamRows: adamRows2,
	ftrl: ftrl2, momentumRows: momentumRows2, adamOwnRows: adamOwnRows2,
	rowWiseAdagrad: rowWiseAdagrad2, ftrlRows: ftrlRows2, clampRows: clampRows2,
}
